package android.app;

import android.content.Context;
import java.io.File;

/** Android makes an app by its constructor without arguments: the test names its folders before. */
public class Application extends Context {
    public static File assets;
    public static File files;

    public Application() {
        super(assets, files);
    }
}
