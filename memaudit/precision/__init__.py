"""What number formats do to recurrent weights, and through them to the memory."""
