"""How much answers change when weights move: E(beta) and stability radii."""
