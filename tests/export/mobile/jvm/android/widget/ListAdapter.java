package android.widget;

public interface ListAdapter {}
