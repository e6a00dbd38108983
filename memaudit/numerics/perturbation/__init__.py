"""How much answers change when weights move: balls of moves, error norms, the search, radii."""
