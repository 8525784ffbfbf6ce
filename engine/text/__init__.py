"""Text on its way to the talker: front ends that turn written text into units; imports no torch."""
