"""Reports that set simulated results beside what a paper prints."""
