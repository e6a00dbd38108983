"""Which stored weights make the modes of state-space layers, in our modules and in others'."""
