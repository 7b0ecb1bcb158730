// A notes app over the module that `msdc export msdc-mini --target android -o model` writes in this folder.
pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}
dependencyResolutionManagement {
    repositoriesMode = RepositoriesMode.FAIL_ON_PROJECT_REPOS
    repositories {
        google()
        mavenCentral()
    }
}
rootProject.name = "notes"
include(":app", ":msdc", ":model")
project(":msdc").projectDir = file("model/android")
project(":model").projectDir = file("model/android/bundle")
