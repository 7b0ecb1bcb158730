package android.widget;

import android.content.Context;
import android.view.View;

public class LinearLayout extends View {
    public static final int VERTICAL = 1;

    public LinearLayout(Context context) {
        super(context);
    }

    public int getOrientation() {
        return VERTICAL;
    }

    public void setOrientation(int orientation) {}

    public void addView(View view) {}
}
