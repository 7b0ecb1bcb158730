package android.content;

import android.content.res.AssetManager;
import java.io.File;

/** What the module uses of Android's class, over two folders. */
public class Context {
    private final File assets;
    private final File files;

    public Context(File assets, File files) {
        this.assets = assets;
        this.files = files;
    }

    public AssetManager getAssets() {
        return new AssetManager(assets);
    }

    public Context getApplicationContext() {
        return this;
    }

    public File getFilesDir() {
        return files;
    }

    public File getNoBackupFilesDir() {
        return files;
    }
}
