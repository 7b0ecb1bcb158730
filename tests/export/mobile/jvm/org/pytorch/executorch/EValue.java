package org.pytorch.executorch;

public class EValue {
    public static EValue from(Tensor tensor) {
        throw new UnsupportedOperationException();
    }

    public Tensor toTensor() {
        throw new UnsupportedOperationException();
    }
}
