package android.content.res;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;

/** What the module uses of Android's class, over a folder. */
public class AssetManager {
    private final File folder;

    public AssetManager(File folder) {
        this.folder = folder;
    }

    public String[] list(String path) throws IOException {
        String[] names = new File(folder, path).list();
        return names == null ? new String[0] : names;
    }

    public InputStream open(String path) throws IOException {
        return new FileInputStream(new File(folder, path));
    }
}
