package android.app;

import android.content.Context;
import android.os.Bundle;
import android.view.View;

/** Signatures that the sample calls. */
public class Activity extends Context {
    public Activity() {
        super(null, null);
    }

    protected void onCreate(Bundle savedInstanceState) {}

    protected void onDestroy() {}

    public void setContentView(View view) {}

    public final String getString(int id, Object... arguments) {
        throw new UnsupportedOperationException();
    }
}
