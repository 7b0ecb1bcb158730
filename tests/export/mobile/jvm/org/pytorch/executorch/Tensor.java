package org.pytorch.executorch;

public abstract class Tensor {
    public static Tensor fromBlob(long[] data, long[] shape) {
        throw new UnsupportedOperationException();
    }

    public static Tensor fromBlob(float[] data, long[] shape) {
        throw new UnsupportedOperationException();
    }

    public abstract long[] shape();

    public abstract float[] getDataAsFloatArray();
}
