"""The paper on universality of state-space models, one row a file."""
