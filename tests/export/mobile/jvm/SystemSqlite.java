import androidx.sqlite.SQLiteConnection;
import androidx.sqlite.SQLiteDriver;
import androidx.sqlite.SQLiteStatement;
import java.nio.charset.StandardCharsets;

/** The machine's own SQLite behind the interfaces of androidx.sqlite; the library in system_sqlite.cpp. */
public class SystemSqlite implements SQLiteDriver {
    static {
        System.loadLibrary("system_sqlite");
    }

    static native long open(byte[] file);

    static native void close(long database);

    static native long prepare(long database, byte[] sql);

    static native boolean step(long statement);

    static native void finish(long statement);

    static native void bind(long statement, int index, int kind, long number, double real, byte[] bytes);

    static native long getLong(long statement, int index);

    static native double getDouble(long statement, int index);

    static native byte[] getBytes(long statement, int index);

    static native boolean isNull(long statement, int index);

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public SQLiteConnection open(String fileName) {
        long database = open(utf8(fileName));
        return new SQLiteConnection() {
            @Override
            public SQLiteStatement prepare(String sql) {
                return new Statement(SystemSqlite.prepare(database, utf8(sql)));
            }

            @Override
            public void close() {
                SystemSqlite.close(database);
            }
        };
    }

    static class Statement implements SQLiteStatement {
        private final long handle;

        Statement(long handle) {
            this.handle = handle;
        }

        @Override
        public void bindNull(int index) {
            bind(handle, index, 0, 0, 0, null);
        }

        @Override
        public void bindLong(int index, long value) {
            bind(handle, index, 1, value, 0, null);
        }

        @Override
        public void bindDouble(int index, double value) {
            bind(handle, index, 2, 0, value, null);
        }

        @Override
        public void bindText(int index, String value) {
            bind(handle, index, 3, 0, 0, utf8(value));
        }

        @Override
        public void bindBlob(int index, byte[] value) {
            bind(handle, index, 4, 0, 0, value);
        }

        @Override
        public boolean step() {
            return SystemSqlite.step(handle);
        }

        @Override
        public long getLong(int index) {
            return SystemSqlite.getLong(handle, index);
        }

        @Override
        public double getDouble(int index) {
            return SystemSqlite.getDouble(handle, index);
        }

        @Override
        public String getText(int index) {
            return new String(getBytes(handle, index), StandardCharsets.UTF_8);
        }

        @Override
        public byte[] getBlob(int index) {
            return getBytes(handle, index);
        }

        @Override
        public boolean isNull(int index) {
            return SystemSqlite.isNull(handle, index);
        }

        @Override
        public void close() {
            finish(handle);
        }
    }
}
