"""What each kind of fault does to an emulated job, by topic as in ``faultinject.vocabulary``."""
