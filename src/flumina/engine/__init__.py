"""What the engines share: how tasks find each other and talk. No Spark in here."""
