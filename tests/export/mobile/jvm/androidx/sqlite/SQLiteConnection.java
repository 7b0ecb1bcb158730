package androidx.sqlite;

public interface SQLiteConnection {
    SQLiteStatement prepare(String sql);

    void close();
}
