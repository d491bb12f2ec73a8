//! Memory traffic of kernels that walk contiguous memory, counted by the emulator: sectors of 32 bytes.
