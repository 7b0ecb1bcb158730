package androidx.sqlite;

public interface SQLiteStatement {
    void bindNull(int index);

    void bindLong(int index, long value);

    void bindDouble(int index, double value);

    void bindText(int index, String value);

    void bindBlob(int index, byte[] value);

    boolean step();

    long getLong(int index);

    double getDouble(int index);

    String getText(int index);

    byte[] getBlob(int index);

    boolean isNull(int index);

    void close();
}
