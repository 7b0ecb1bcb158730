import org.jetbrains.kotlin.gradle.dsl.JvmTarget

plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "org.msdc.sample"
    compileSdk = 35

    defaultConfig {
        applicationId = "org.msdc.sample"
        minSdk = 24
        targetSdk = 35
        versionCode = 1
        versionName = "1.0"
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_11
        targetCompatibility = JavaVersion.VERSION_11
    }
    // Programs do not compress; stored as they are, they install with a plain copy.
    androidResources { noCompress += listOf("pte", "model", "onnx", "data") }
}

kotlin {
    compilerOptions { jvmTarget = JvmTarget.JVM_11 }
}

dependencies {
    implementation(project(":msdc"))
    implementation(project(":{{asset}}"))
    implementation("org.jetbrains.kotlinx:kotlinx-coroutines-android:1.8.1")
}
