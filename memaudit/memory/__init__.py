"""Memory functions: the queries, the curves they measure, and the assumptions behind them."""
