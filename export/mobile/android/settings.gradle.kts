// For a build of this folder alone, such as `gradle publish`; an app includes the two modules in its own build.
buildscript {
    repositories {
        google()
        mavenCentral()
    }
    dependencies {
        classpath("com.android.tools.build:gradle:8.6.1")
        classpath("org.jetbrains.kotlin:kotlin-gradle-plugin:2.0.21")
    }
}
dependencyResolutionManagement {
    repositories {
        google()
        mavenCentral()
    }
}
rootProject.name = "msdc"
include(":{{asset}}")
project(":{{asset}}").projectDir = file("bundle")
