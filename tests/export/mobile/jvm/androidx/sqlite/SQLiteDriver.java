package androidx.sqlite;

/** The signatures that the module calls. */
public interface SQLiteDriver {
    SQLiteConnection open(String fileName);
}
