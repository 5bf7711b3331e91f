"""Attention for Hopper, from a plain pipeline to ping-pong warpgroups and persistent CTAs."""
