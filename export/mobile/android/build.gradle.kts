// The encoder as an Android library: code only; bundle/ next to it holds the model as assets.
//   settings.gradle.kts:  include(":msdc"); project(":msdc").projectDir = file("path/to/bundle/android")
//                         include(":{{asset}}"); project(":{{asset}}").projectDir = file("path/to/bundle/android/bundle")
//   app/build.gradle.kts: implementation(project(":msdc")); implementation(project(":{{asset}}"))
// Android Gradle plugin 8.6 or later (9 with its built-in Kotlin), Gradle 8.7, Kotlin 2.0, JDK 17; their versions are the
// app's. Properties (gradle.properties or -P):
//   msdc.engine   the runtime, where the bundle holds programs for several: {{engines}}
//   msdc.runtime  its version on Maven, where the one that wrote the program has no Android release
//   msdc.sqlite   a folder of sqlite3.c and sqlite3.h for the search index; without it CMake downloads the pinned release
import org.jetbrains.kotlin.gradle.dsl.JvmTarget
import org.jetbrains.kotlin.gradle.tasks.KotlinJvmCompile

plugins {
    id("com.android.library")
    `maven-publish`
}

// Built in since version 9 of the Android plugin, which refuses the other one.
if (extensions.findByName("kotlin") == null) apply(plugin = "org.jetbrains.kotlin.android")

// Runtimes of this bundle, in the release that wrote the program.
val versions = mapOf({{versions}})
val engine: String = providers.gradleProperty("msdc.engine").getOrElse("{{engine}}")
require(engine in versions) { "msdc.engine=$engine: this bundle holds programs for ${versions.keys}" }
val runtimeVersion: String = providers.gradleProperty("msdc.runtime").getOrElse(versions.getValue(engine))
val runtimeLibrary = when (engine) {
    "onnx" -> "com.microsoft.onnxruntime:onnxruntime-android:$runtimeVersion"
    else -> "org.pytorch:executorch-android:$runtimeVersion"
}

// ONNX Runtime is called from C++: its headers are in the library's archive. Unpacked when the project is configured,
// because CMake looks for them when Android Studio synchronises, before any task runs.
val headers = layout.buildDirectory.dir("onnxruntime-$runtimeVersion").get().asFile
if (engine == "onnx" && !headers.resolve("headers/onnxruntime_c_api.h").isFile) {
    val archive = configurations.detachedConfiguration(dependencies.create("$runtimeLibrary@aar"))
    archive.isTransitive = false
    copy {
        from(zipTree(archive.singleFile)) { include("headers/**") }
        into(headers)
    }
}

android {
    namespace = "org.msdc.encoder"
    compileSdk = 35

    defaultConfig {
        minSdk = 24
        // Those of the runtime's library: ExecuTorch has none for 32 bits. On others isSupported() is false.
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") + if (engine == "onnx") listOf("armeabi-v7a", "x86") else listOf() }
        externalNativeBuild {
            cmake {
                arguments += listOf("-DANDROID_STL=c++_static", "-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON")
                providers.gradleProperty("msdc.sqlite").orNull?.let { arguments += "-DMSDC_SQLITE=$it" }
                arguments += when (engine) {
                    "onnx" -> listOf("-DMSDC_ENGINE=onnx", "-DONNXRUNTIME_INCLUDE=$headers/headers")
                    else -> listOf("-DMSDC_ENGINE=none") // ExecuTorch runs behind its Java interface
                }
            }
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
    sourceSets.named("main") { kotlin.srcDir("src/$engine/kotlin") }
    publishing { singleVariant("release") { withSourcesJar() } }
}

tasks.withType<KotlinJvmCompile>().configureEach {
    compilerOptions { jvmTarget.set(JvmTarget.JVM_11) }
}

dependencies {
    implementation(runtimeLibrary)
    api("org.jetbrains.kotlinx:kotlinx-coroutines-core:1.8.1")
    androidTestImplementation("androidx.test.ext:junit:1.2.1")
    androidTestImplementation("androidx.test:runner:1.6.2")
    androidTestImplementation(project(":{{asset}}"))
}

// The AAR: `gradle publish` in android/ writes it to build/repository.
publishing {
    repositories { maven(rootProject.layout.buildDirectory.dir("repository")) { name = "folder" } }
    publications {
        register<MavenPublication>("release") {
            groupId = "org.msdc"
            artifactId = "encoder-$engine"
            version = "{{version}}"
            afterEvaluate { from(components["release"]) }
        }
    }
}
