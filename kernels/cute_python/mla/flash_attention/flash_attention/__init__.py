"""Base version: persistent ping-pong attention, RoPE apart."""
