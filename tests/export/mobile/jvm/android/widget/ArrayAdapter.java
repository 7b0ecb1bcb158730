package android.widget;

import android.content.Context;
import java.util.Collection;

public class ArrayAdapter<T> implements ListAdapter {
    public ArrayAdapter(Context context, int layout) {}

    public void clear() {}

    public void addAll(Collection<? extends T> items) {}
}
