// Search over a list of notes, with the encoder module of the bundle in the folder above.
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
rootProject.name = "msdc-sample"
include(":app", ":msdc", ":{{asset}}")
project(":msdc").projectDir = file("../android")
project(":{{asset}}").projectDir = file("../android/bundle")
