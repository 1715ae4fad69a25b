print("a stand-in")
