"""The evaluation of Stout (McCullough et al., USENIX ATC 2010), repeated before a modelled store."""
