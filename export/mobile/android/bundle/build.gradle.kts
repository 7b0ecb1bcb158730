// The model as assets, without code: one app can hold several bundles, each under its own name.
plugins {
    id("com.android.library")
    `maven-publish`
}

val bundleFiles = mapOf(
    {{files}}
)
val engine: String = providers.gradleProperty("msdc.engine").getOrElse("{{engine}}")

android {
    namespace = "org.msdc.bundle.{{namespace}}"
    compileSdk = 35
    defaultConfig { minSdk = 24 }
    publishing { singleVariant("release") }
}

// The bundle is two folders above; its files become assets without a second copy in the source tree.
abstract class CopyBundle : DefaultTask() {
    @get:InputFiles
    abstract val bundle: ConfigurableFileCollection

    @get:OutputDirectory
    abstract val assets: DirectoryProperty

    @get:Inject
    abstract val files: FileSystemOperations

    /** Copies the bundle's files into the assets. */
    @TaskAction
    fun copyFiles() {
        files.sync {
            from(bundle)
            into(assets.dir("msdc/{{asset}}"))
        }
    }
}

val copyBundle = tasks.register<CopyBundle>("copyBundle") {
    bundle.from(bundleFiles.getValue(engine).map { file("../../$it") })
}
androidComponents.onVariants { variant ->
    variant.sources.assets?.addGeneratedSourceDirectory(copyBundle, CopyBundle::assets)
}

// The AAR: `gradle publish` in android/ writes it to build/repository.
publishing {
    repositories { maven(rootProject.layout.buildDirectory.dir("repository")) { name = "folder" } }
    publications {
        register<MavenPublication>("release") {
            groupId = "org.msdc"
            artifactId = "{{asset}}"
            version = "{{version}}"
            afterEvaluate { from(components["release"]) }
        }
    }
}
