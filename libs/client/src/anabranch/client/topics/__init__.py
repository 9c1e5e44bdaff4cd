"""Topics: their administration, producers, consumers, named consumers and groups.

A topic is backed by an internal stream whose segments are the partitions (ADR 15), so producers
stand on the lanes of writers, and consumers on the intake of readers.

    partitioner, values, offsets, records   pure
    layout                                  the partitions of a topic, with their segments
    producer ─► lanes, sending              records to partitions
    consumer ─► feed, commits               records from partitions, and committed offsets
    admin, spus, consumers                  administration
    group                                   reader groups over topics
"""
