package android.widget;

import android.content.Context;
import android.view.View;

public class ListView extends View {
    public ListView(Context context) {
        super(context);
    }

    public ListAdapter getAdapter() {
        throw new UnsupportedOperationException();
    }

    public void setAdapter(ListAdapter adapter) {}
}
