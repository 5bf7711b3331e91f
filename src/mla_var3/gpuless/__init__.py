"""Fake GPU for torch programs on a CPU, shared by cuTile interpreter and PTX emulator."""
