//! Pages for people: the only room with HTML. It knows no engine; what it shows is handed to it.
