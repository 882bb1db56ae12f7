"""Mock GPUs, a network model and a consensus store in virtual time, and what drives them."""
