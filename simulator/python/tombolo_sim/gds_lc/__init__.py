"""The GDS-LC paper's experiments (Hou and Chen, ACM TOS 2017, section 5), repeated with whole objects."""
