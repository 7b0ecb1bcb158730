// The encoder as an Android library. Include it in an app:
//   settings.gradle.kts:  include(":msdc"); project(":msdc").projectDir = file("path/to/bundle/android")
//   app/build.gradle.kts: implementation(project(":msdc"))
// The plugins' versions are the app's. NDK 27 or later, for libraries that load on devices with 16 KB pages.
plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "org.msdc.encoder"
    compileSdk = 35
    ndkVersion = "27.1.12297006"

    defaultConfig {
        minSdk = 23
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
        externalNativeBuild {
            cmake { arguments += listOf("-DANDROID_STL=c++_static", "-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON") }
        }
        consumerProguardFiles("consumer-rules.pro")
        testInstrumentationRunner = "androidx.test.runner.AndroidJUnitRunner"
    }
    externalNativeBuild {
        cmake { path = file("src/main/cpp/CMakeLists.txt") }
    }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_11
        targetCompatibility = JavaVersion.VERSION_11
    }
    kotlinOptions { jvmTarget = "11" }
    // Programs and tokenizers do not compress, and installing is a plain copy then.
    androidResources { noCompress += listOf("pte", "model", "onnx", "data") }
    sourceSets { getByName("main") { assets.srcDir(layout.buildDirectory.dir("generated/msdc")) } }
}

dependencies {
    implementation("org.pytorch:executorch-android:{{executorch}}")
    androidTestImplementation("androidx.test.ext:junit:1.2.1")
    androidTestImplementation("androidx.test:runner:1.6.2")
}

// The bundle lies in the folder above; its files become assets without a second copy in the source tree.
val copyBundle by tasks.registering(Copy::class) {
    from("..") { include({{files}}) }
    into(layout.buildDirectory.dir("generated/msdc/msdc"))
}
tasks.named("preBuild") { dependsOn(copyBundle) }
