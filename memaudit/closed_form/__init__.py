"""The exact memory function of linear layers beside the measured one."""
