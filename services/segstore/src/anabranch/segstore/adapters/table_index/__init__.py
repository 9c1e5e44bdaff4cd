"""The index of table segments: RocksDB, and a memory with the same rules for tests."""
