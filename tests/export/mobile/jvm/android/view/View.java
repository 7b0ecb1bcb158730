package android.view;

import android.content.Context;

public class View {
    public View(Context context) {}

    public boolean getFitsSystemWindows() {
        return false;
    }

    public void setFitsSystemWindows(boolean value) {}
}
