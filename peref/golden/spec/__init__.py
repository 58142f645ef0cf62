"""What the specification says, and the files that say it.

cases      what a case is and why it exists; which levels there are; a case from its words
files      tensor files and JSON that others wrote: nothing is believed before it is checked
checksums  the bytes of golden files, in a folder or an archive, held against their digests
entries    the words and tensors of each case as they stand in the files
book       all golden files of a folder or an archive; flags in words
rule       the tolerance rule: one dimensionless number for each element
"""
