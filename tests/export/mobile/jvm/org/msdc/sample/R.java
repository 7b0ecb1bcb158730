package org.msdc.sample;

/** What Gradle makes of the sample's resources. */
public final class R {
    public static final class string {
        public static final int query_hint = 1;
        public static final int starting = 2;
        public static final int found = 3;
    }
}
