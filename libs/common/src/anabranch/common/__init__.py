"""Values, contracts, codecs and ports that every part of Anabranch shares."""
