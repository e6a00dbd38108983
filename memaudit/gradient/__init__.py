"""How large gradients are beside the weights they move."""
