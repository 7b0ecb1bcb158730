// The one place with the plugin's version; Kotlin is built into it.
plugins {
    id("com.android.application") version "9.4.0" apply false
    id("com.android.library") version "9.4.0" apply false
}
