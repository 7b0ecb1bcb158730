// The encoder as an Android library, for Android Gradle plugin 9.3 or later (its built-in Kotlin, its default NDK).
//   settings.gradle.kts:  include(":msdc"); project(":msdc").projectDir = file("path/to/bundle/android")
//   app/build.gradle.kts: implementation(project(":msdc"))
// The plugin's version is the app's. Properties (gradle.properties or -P):
//   msdc.engine   the runtime, where the bundle holds programs for several: {{engines}}
//   msdc.runtime  its version on Maven, where the one that wrote the program has no Android release
import org.jetbrains.kotlin.gradle.dsl.JvmTarget

plugins {
    id("com.android.library")
}

// Runtimes of this bundle: the release that wrote the program, and the files it needs.
val versions = mapOf({{versions}})
val bundleFiles = mapOf(
    {{files}}
)
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
    compileSdk = 37

    defaultConfig {
        minSdk = 24
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
        externalNativeBuild {
            cmake {
                arguments += listOf("-DANDROID_STL=c++_static", "-DANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON")
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
    sourceSets.named("main") { kotlin.directories += "src/$engine/kotlin" }
}

kotlin {
    compilerOptions { jvmTarget = JvmTarget.JVM_11 }
}

dependencies {
    implementation(runtimeLibrary)
    api("org.jetbrains.kotlinx:kotlinx-coroutines-core:1.10.2")
    androidTestImplementation("androidx.test.ext:junit:1.2.1")
    androidTestImplementation("androidx.test:runner:1.6.2")
}

// The bundle lies in the folder above; its files become assets without a second copy in the source tree.
abstract class CopyBundle : DefaultTask() {
    @get:InputFiles
    abstract val bundle: ConfigurableFileCollection

    @get:OutputDirectory
    abstract val assets: DirectoryProperty

    @get:Inject
    abstract val files: FileSystemOperations

    /** Copies the bundle's files into the folder msdc of the assets. */
    @TaskAction
    fun copyFiles() {
        files.sync {
            from(bundle)
            into(assets.dir("msdc"))
        }
    }
}

// -Pmsdc.assets=false leaves the bundle out, for apps that download it.
if (providers.gradleProperty("msdc.assets").getOrElse("true").toBoolean()) {
    val copyBundle = tasks.register<CopyBundle>("copyBundle") {
        bundle.from(bundleFiles.getValue(engine).map { file("../$it") })
    }
    androidComponents.onVariants { variant ->
        variant.sources.assets?.addGeneratedSourceDirectory(copyBundle, CopyBundle::assets)
    }
}
