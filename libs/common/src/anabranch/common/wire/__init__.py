"""Codecs of the data plane: blocks and packets. Pure: bytes in, values out."""
