"""The candidate models of PeerClassifier, how they are fitted and how they are weighted."""
