"""From the tensors of a file to a subject: recognised, rebuilt, filled and described."""
