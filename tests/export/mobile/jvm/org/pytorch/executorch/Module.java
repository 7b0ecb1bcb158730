package org.pytorch.executorch;

/** The signatures that the module calls; the library itself runs on Android only. */
public class Module {
    public static final int LOAD_MODE_MMAP = 1;

    public static Module load(String path, int loadMode, int numThreads) {
        throw new UnsupportedOperationException("no ExecuTorch on this JVM");
    }

    public EValue[] execute(String method, EValue... inputs) {
        throw new UnsupportedOperationException();
    }

    public void destroy() {}
}
