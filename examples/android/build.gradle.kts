// The versions of all plugins. Version 9 of the Android plugin has Kotlin built in: leave out the third line, and the plugin
// in app/build.gradle.kts.
plugins {
    id("com.android.application") version "8.6.1" apply false
    id("com.android.library") version "8.6.1" apply false
    id("org.jetbrains.kotlin.android") version "2.0.21" apply false
    id("org.jetbrains.kotlin.plugin.compose") version "2.0.21" apply false
}
